# The guard. It is told what to end and what to remove if its parent is gone, which it sees by the end of
# its input; the parent's kernel sees to that end, however the parent died. A line that came in half is
# no line.
trap '' HUP INT QUIT TERM
PATH=$PATH:/usr/bin:/bin
while IFS= read -r line; do
    entry=${line#* }
    case $line in
    'add '*) set -- "$@" "$entry" ;;
    'drop '*)
        for known do
            shift
            [ "$known" = "$entry" ] || set -- "$@" "$known"
        done
        ;;
    esac
done
for entry do
    case $entry in 'group '*) kill -s KILL -- "-${entry#* }" ;; esac
done
for entry do
    case $entry in
    'directory '*)
        # Whoever was just killed may be in the middle of making a file.
        for attempt in 1 2 3 4 5 6 7 8 9 10; do
            rm -rf -- "${entry#* }" && break
            sleep 0.1
        done
        ;;
    esac
done
