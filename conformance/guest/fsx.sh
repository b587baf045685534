# fsx twice over (the C one of xfstests, the Rust one), buffered and memory-mapped, then direct.
. "$CONF/guest/lib.sh"
mount_volume || { bad mount; finish; exit 1; }
n=$FSX_OPS c=$SUITES/xfstests/ltp/fsx r=$SUITES/fsx-rs/bin/fsx
run() { local name=$1; shift; local s; s=$(date +%s)
  if "$@" >"/share/fsx-$name.log" 2>&1; then ok "$name"; else bad "$name" "status $?: $(tail -n 1 "/share/fsx-$name.log")"; fi
  echo "# $name: $(($(date +%s) - s)) s, $(tail -n 1 "/share/fsx-$name.log")"; rm -f /mnt/n/fsx*; }
run c-buffered "$c" -q -S 1 -N "$n" -l 1048576 /mnt/n/fsx
run c-close-to-open "$c" -q -S 2 -N "$n" -c 100 -l 262144 /mnt/n/fsx
run c-direct "$c" -q -S 3 -N "$n" -l 1048576 -Z -R -W -r 4096 -w 4096 /mnt/n/fsx
run rust "$r" -S 4 -N "$n" /mnt/n/fsxrs
umount /mnt/n; mount_volume "$OPTS,nolock,sync,noac,rsize=8192,wsize=8192" && run c-sync-8k "$c" -q -S 5 -N $((n / 10)) -l 262144 /mnt/n/fsx
umount /mnt/n; finish
