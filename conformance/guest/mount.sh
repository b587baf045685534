# The mount itself, then what the kernel client can see of a volume (files.py).
. "$CONF/guest/lib.sh"
check mount mount_volume || exit 1
mountpoint -q /mnt/n || { finish; exit 1; }
check write-through-16-connections bash -c 'for i in $(seq 32); do head -c 65536 /dev/urandom >/mnt/n/c$i & done; wait; sync -f /mnt/n; rm /mnt/n/c*'
opts=$(awk '$2=="/mnt/n"{print $4}' /proc/mounts); echo "# $opts"
for o in vers=3 proto=tcp nconnect=16 rsize=1048576 wsize=1048576; do check "option-$o" grep -q "$o" <<<"$opts"; done
n=$(ss -Htn state established "dport = :$PORT" | wc -l); [ "$n" = 16 ] && ok connections || bad connections "$n instead of 16"
read -r _ size used avail _ <<<"$(df -P /mnt/n | tail -n 1)"
[ "$size" -gt 0 ] && [ "$avail" -gt 0 ] && [ "$avail" -le "$size" ] && [ "$used" -le "$size" ] && ok df || bad df "$size $used $avail"
read -r _ total _ free _ <<<"$(df -Pi /mnt/n | tail -n 1)"
[ "$total" -gt 0 ] && [ "$free" -gt 0 ] && ok df-inodes || bad df-inodes "$total $free"
head -c 67108864 /dev/urandom >/tmp/big; cp /tmp/big /mnt/n/big; check remount remount_volume; check data-after-remount cmp /tmp/big /mnt/n/big
u=$(stat -c %b /mnt/n/big); [ $((u * 512)) -ge 67108864 ] && ok used-blocks || bad used-blocks "$u"
# By what is used: what is available also depends on the file system below, which others use too.
used() { df -P /mnt/n | awk 'END{print $3}'; }
before=$(used); rm /mnt/n/big; sync -f /mnt/n
for _ in $(seq 30); do after=$(used); [ $((before - after)) -ge 60000 ] && break; sleep 1; done
[ $((before - after)) -ge 60000 ] && ok space-returned || bad space-returned "used before removal $before KiB, after $after KiB"
mkdir -p /mnt/n/t && chmod 777 /mnt/n/t
python3 "$CONF/guest/files.py" /mnt/n/t | tee /tmp/files.out
PASSED=$((PASSED + $(grep -c '^ok ' /tmp/files.out))) FAILED=$((FAILED + $(grep -c '^FAIL ' /tmp/files.out)))
rm -rf /mnt/n/t; [ ! -e /mnt/n/t ] && ok remove-all || bad remove-all
check umount umount /mnt/n
check read-only-mount mount_volume "$OPTS,nolock,ro"; refuses read-only-write 'Read-only' touch /mnt/n/x; umount /mnt/n
for s in krb5 sys; do [ $s = sys ] && check sec-sys mount_volume "$OPTS,nolock,sec=sys" || refuses sec-krb5 '' mount_volume "$OPTS,nolock,sec=krb5"; umount /mnt/n 2>/dev/null; done
refuses unknown-export '' mount -t nfs -o "$OPTS,nolock" "$HOST:/no/such/export" /mnt/n
check nfsv2-rsize-small mount_volume "$OPTS,nolock,rsize=4096,wsize=4096"; head -c 100001 /dev/urandom >/tmp/s; check small-io bash -c 'cp /tmp/s /mnt/n/s && umount /mnt/n && mount -t nfs -o '"$OPTS,nolock,rsize=1024,wsize=1024 $HOST:$EXP"' /mnt/n && cmp /tmp/s /mnt/n/s && rm /mnt/n/s'; umount /mnt/n
lock_services
check showmount bash -c "showmount -e $HOST | grep -q '^$EXP'"
check mount-by-rpcbind mount_volume "vers=3,tcp,nolock"; umount /mnt/n 2>/dev/null
check mount-with-locks mount_volume "$OPTS"; check flock flock -n /mnt/n/.flock true; rm -f /mnt/n/.flock; umount /mnt/n
finish
