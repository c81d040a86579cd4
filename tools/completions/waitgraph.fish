# SPDX-License-Identifier: Apache-2.0
set -l verbs run ps dump why mem diff report export top demo
complete -c waitgraph -f -n "not __fish_seen_subcommand_from $verbs" -a "$verbs"
complete -c waitgraph -n "__fish_seen_subcommand_from why dump" -a "(__fish_complete_pids)"
for o in json force dot svg all no-follow no-stacks no-bpf ptrace no-color
	complete -c waitgraph -n "__fish_seen_subcommand_from why dump" -l $o
end
for o in gap deadline
	complete -c waitgraph -n "__fish_seen_subcommand_from why dump" -l $o -x
end
complete -c waitgraph -n "__fish_seen_subcommand_from why dump report export" -l output -s o -r
complete -c waitgraph -n "__fish_seen_subcommand_from dump" -l save
for o in dir library
	complete -c waitgraph -n "__fish_seen_subcommand_from run" -l $o -r
end
for o in signal stall trace-max
	complete -c waitgraph -n "__fish_seen_subcommand_from run" -l $o -x
end
complete -c waitgraph -n "__fish_seen_subcommand_from run" -l stacks -x -a "all alloc off"
complete -c waitgraph -n "__fish_seen_subcommand_from run" -l show
complete -c waitgraph -n "__fish_seen_subcommand_from ps top" -l dir -r
complete -c waitgraph -n "__fish_seen_subcommand_from ps mem diff" -l json
complete -c waitgraph -n "__fish_seen_subcommand_from mem diff" -l top -x
complete -c waitgraph -n "__fish_seen_subcommand_from report export" -l force
complete -c waitgraph -n "__fish_seen_subcommand_from export" -l format -x -a "perfetto folded csv sqlite memory-viz openmetrics"
complete -c waitgraph -n "__fish_seen_subcommand_from export" -l at-end
complete -c waitgraph -n "__fish_seen_subcommand_from top" -l batch
for o in count interval
	complete -c waitgraph -n "__fish_seen_subcommand_from top" -l $o -x
end
complete -c waitgraph -n "__fish_seen_subcommand_from demo" -f -a "oom kernel log rank"
for o in json keep list
	complete -c waitgraph -n "__fish_seen_subcommand_from demo" -l $o
end
