# What a page's blocks are run by. The lines that it prints are for the runner; what blocks print goes into files. The
# shell leads a process group, so that everything that a page has started is ended with it.
set -Eeo pipefail
shopt -s expand_aliases
page=$1
# the end of the page is told to the whole group
trap : TERM
# the command of a block that fails, and not that of one of our own functions
trap '[ -n "${FUNCNAME[0]-}" ] || case $BASH_COMMAND in return*) ;; *) printf "%s\n" "$BASH_COMMAND" >"$page/command" ;; esac' ERR
servers=()

# begin NUMBER: a block's turn.
begin() {
    rm -f "$page/command"
    echo "@@ begin $1."
}

# await FILE TEXT PROCESS: waits until the process has printed the text.
await() {
    until grep -qF -e "$2" "$1"; do
        if ! kill -0 "$3" 2>/dev/null; then
            grep -qF -e "$2" "$1" && return 0
            echo "it ended before it printed: $2" >>"$1"
            return 1
        fi
        sleep 0.05
    done
}

# fails FILE: what the file says must fail.
fails() {
    if (. "$1"); then
        echo "this should have failed"
        return 1
    fi
}

# guest NUMBER FILE: types the commands of the file into a guest, and prints what they print.
guest() {
    local number=$1 line
    [ -e "$page/guest.$number.out" ] || {
        echo "there is no guest $number: a block with qemu-system-x86_64 boots it"
        return 1
    }
    if ! [ -e "$page/guest.$number.up" ]; then
        guest_says "$number" '@@ say up' >/dev/null
        touch "$page/guest.$number.up"
    fi
    {
        cat "$2"
        echo '@@ run'
    } >"$page/guest.$number.in"
    guest_says "$number" '@@ done '
    return "${line#@@ done }"
}

# guest_says NUMBER TEXT: reads what a guest says, into line, until that begins with the text; prints what its commands print.
guest_says() {
    while IFS= read -r -t 100 line; do
        line=${line%$'\r'}
        case $line in
        "$2"*) return 0 ;;
        '| '*) printf '%s\n' "${line#| }" ;;
        esac
    done <"$page/guest.$1.out"
    echo "the guest does not answer"
    return 1
}

# end_last: ends the server or guest that was started last.
end_last() {
    local last=$((${#servers[@]} - 1)) server process
    server=${servers[last]}
    unset "servers[$last]"
    # what the shell of it waits for, or itself
    local processes="$(cat "/proc/$server/task/$server/children" 2>/dev/null) $server" looks
    for process in $processes; do
        kill -TERM "$process" 2>/dev/null || true
    done
    ended "$server"
    # the shell may end first, and a guest has its drive until it is gone
    for process in $processes; do
        for ((looks = 0; looks < 200; looks++)); do
            kill -0 "$process" 2>/dev/null || break
            sleep 0.05
        done
    done
}

# finish: ends guests and servers, the last one first, since it may use those before it. Each must end well.
finish() {
    while [ ${#servers[@]} -gt 0 ]; do end_last; done
    local others=$(jobs -p) process
    kill -TERM 0
    for process in $others; do ended "$process"; done
}

# ended PROCESS: waits for its end, which must be a good one.
ended() {
    wait "$1" || {
        echo "a server of this page ended with status $?"
        return 1
    }
}
