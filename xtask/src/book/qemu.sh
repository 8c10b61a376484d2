# QEMU as the reader has it, with the tests' guest in place of a disk of the reader's own: the kernel, its file system, no
# display, an emulated processor. Everything else is as the page says.
[ "$1" = --version ] && exec "${qemu[@]}" --version
options=()
while [ $# -gt 0 ]; do
    case "$1 $2" in
    "-accel "* | "-cpu "* | "-smp "* | "-drive file=root"*) shift 2 ;;
    "-nographic "*) shift ;;
    *)
        options+=("$1")
        shift
        ;;
    esac
done
number=1
while ! mkdir "$page/guest.$number" 2>/dev/null; do number=$((number + 1)); done
mkfifo "$page/guest.$number.in" "$page/guest.$number.out"
echo "ready: guest $number"
exec "${qemu[@]}" -nodefaults -no-user-config -display none -accel tcg,thread=multi -cpu max -smp 2 \
    -kernel "$kernel" -initrd "$initramfs" -append "$append" -no-reboot \
    -fw_cfg "name=opt/nvmirage/job,file=$page/guest.sh" \
    -chardev "pipe,id=job,path=$page/guest.$number" \
    -serial "file:$page/guest.$number/kernel.log" -serial chardev:job "${options[@]}"
