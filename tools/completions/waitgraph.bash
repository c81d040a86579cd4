# SPDX-License-Identifier: Apache-2.0
_waitgraph() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]}
	local ask="--json --output --force --dot --svg --all --gap --deadline --no-follow --no-stacks --no-bpf --ptrace --no-color --help"
	local options=
	if [ "$COMP_CWORD" = 1 ]; then
		COMPREPLY=($(compgen -W "run ps dump why mem diff report export top demo --help --version" -- "$cur"))
		return
	fi
	case $prev in
	--format | -F)
		COMPREPLY=($(compgen -W "perfetto folded csv sqlite memory-viz openmetrics" -- "$cur"))
		return
		;;
	--stacks)
		COMPREPLY=($(compgen -W "all alloc off" -- "$cur"))
		return
		;;
	--dir)
		COMPREPLY=($(compgen -d -- "$cur"))
		return
		;;
	esac
	case $verb in
	run) options="--dir --signal --stall --stacks --trace-max --library --show --help --" ;;
	why) options=$ask ;;
	dump) options="$ask --save" ;;
	mem | diff) options="--json --top --help" ;;
	report) options="--output --force --help" ;;
	export) options="--format --output --force --at-end --help" ;;
	ps) options="--json --dir --help" ;;
	top) options="--batch --count --interval --dir --help" ;;
	demo) options="--list --json --keep --help" ;;
	esac
	case $cur in
	-*)
		COMPREPLY=($(compgen -W "$options" -- "$cur"))
		return
		;;
	esac
	case $verb in
	run) COMPREPLY=($(compgen -c -- "$cur")) ;;
	why | dump) COMPREPLY=($(compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur") $(compgen -f -- "$cur")) ;;
	mem | diff | report | export) COMPREPLY=($(compgen -f -X '!*.trace' -- "$cur") $(compgen -d -- "$cur")) ;;
	demo) COMPREPLY=($(compgen -W "oom kernel log rank" -- "$cur")) ;;
	esac
}
complete -F _waitgraph waitgraph
