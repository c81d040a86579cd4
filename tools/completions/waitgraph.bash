# SPDX-License-Identifier: Apache-2.0
_waitgraph() {
	local cur=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}
	local ask="--json --output --force --dot --svg --all --gap --deadline --no-follow --no-stacks --no-bpf --ptrace --no-color --help"
	if [ "$COMP_CWORD" = 1 ]; then
		COMPREPLY=($(compgen -W "run ps dump why mem diff report export top demo --help --version" -- "$cur"))
		return
	fi
	case $verb in
	run) COMPREPLY=($(compgen -W "--dir --signal --stall --stacks --trace-max --library --show --" -- "$cur") $(compgen -c -- "$cur")) ;;
	why | dump)
		case $cur in
		-*) COMPREPLY=($(compgen -W "$ask" -- "$cur")) ;;
		*) COMPREPLY=($(compgen -W "$(cd /proc && echo [0-9]*)" -- "$cur") $(compgen -f -- "$cur")) ;;
		esac ;;
	export)
		case ${COMP_WORDS[COMP_CWORD - 1]} in
		--format) COMPREPLY=($(compgen -W "perfetto folded csv sqlite memory-viz openmetrics" -- "$cur")) ;;
		*) COMPREPLY=($(compgen -W "--format --output" -- "$cur") $(compgen -f -X '!*.trace' -- "$cur")) ;;
		esac ;;
	mem | diff | report) COMPREPLY=($(compgen -W "--json" -- "$cur") $(compgen -f -X '!*.trace' -- "$cur") $(compgen -d -- "$cur")) ;;
	ps | top) COMPREPLY=($(compgen -W "--json --dir --help" -- "$cur")) ;;
	demo) COMPREPLY=($(compgen -W "oom kernel log rank --list --json --keep" -- "$cur")) ;;
	esac
}
complete -F _waitgraph waitgraph
