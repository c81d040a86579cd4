# SPDX-License-Identifier: Apache-2.0
set -l verbs run ps dump why mem diff report export top demo
complete -c waitgraph -f -n "not __fish_seen_subcommand_from $verbs" -a "$verbs"
complete -c waitgraph -n "__fish_seen_subcommand_from why dump" -a "(__fish_complete_pids)"
for o in json dot svg all no-follow no-stacks no-bpf ptrace no-color
	complete -c waitgraph -n "__fish_seen_subcommand_from why dump" -l $o
end
complete -c waitgraph -n "__fish_seen_subcommand_from export" -l format -x -a "perfetto folded csv sqlite memory-viz openmetrics"
complete -c waitgraph -n "__fish_seen_subcommand_from demo" -f -a "oom kernel log rank"
