# The server is killed with -9 while the kernel's client writes through a hard mount: the client must get
# everything through in the end, resending what was not committed when the write verifier changes.
# Only requests that may be repeated are made: NFSv3 cannot promise more of the others across a restart.
. "$CONF/guest/lib.sh"
mount_volume || { bad mount; finish; exit 1; }
N=0
"$SUITES/xfstests/ltp/fsx" -q -S 6 -N "$FSX_OPS" -l 1048576 /mnt/n/fsx >/share/crash-fsx.log 2>&1 & p=$!
while kill -0 $p 2>/dev/null && [ $N -lt "$CRASHES" ]; do sleep 1.$((RANDOM % 10)); ask crash; done
if wait $p; then ok fsx; else bad fsx "$(tail -n 1 /share/crash-fsx.log)"; fi
echo "# $N crashes under fsx"; [ $N -ge 3 ] && ok several-crashes || bad several-crashes "only $N"
head -c 268435456 /dev/urandom >/tmp/big
for i in 1 2 3 4; do
  N=0
  { dd if=/tmp/big of=/mnt/n/big bs=1M conv=fsync,notrunc 2>/dev/null; echo $? >/tmp/dd.rc; } & p=$!
  while sleep 0.$((RANDOM % 9 + 1)); kill -0 $p 2>/dev/null; do ask crash; done
  echo "# $N crashes under dd"
  wait $p; [ "$(cat /tmp/dd.rc)" = 0 ] || bad "dd-$i" "status $(cat /tmp/dd.rc)"
  ask crash; umount /mnt/n; mount_volume; check "big-file-$i" cmp /tmp/big /mnt/n/big
  head -c 1048576 /dev/urandom | dd of=/tmp/big bs=4096 seek=$((RANDOM * 2 % 65000)) conv=notrunc iflag=fullblock 2>/dev/null
done
# Files written and closed one by one: closing commits, so each must be whole after a crash at once.
mkdir -p /mnt/n/many
for i in $(seq 200); do head -c $((RANDOM * 4)) /tmp/big >/mnt/n/many/$i; done
ask crash; echo 3 >/proc/sys/vm/drop_caches
n=0; for i in $(seq 200); do s=$(stat -c %s /mnt/n/many/$i); cmp -s -n "$s" /tmp/big /mnt/n/many/$i && [ "$s" -gt 0 ] && n=$((n + 1)); done
[ $n -ge 199 ] && ok closed-files || bad closed-files "$n of 200 are whole"
rm -rf /mnt/n/many /mnt/n/big /mnt/n/fsx*; umount /mnt/n; finish
