# The job of a guest that a page types into: takes commands up to a line `@@ run`, runs them, and prints what they print.
say up
: >/tmp/.typed
while IFS= read -r line; do
    if [ "$line" != '@@ run' ]; then
        printf '%s\n' "$line" >>/tmp/.typed
        continue
    fi
    status=0
    (cd /tmp && set -e && . /tmp/.typed) >/tmp/.said 2>&1 </dev/null &
    wait $! || status=$?
    [ -z "$(tail -c 1 /tmp/.said)" ] || echo >>/tmp/.said
    sed 's/^/| /' /tmp/.said
    echo "@@ done $status"
    : >/tmp/.typed
done
