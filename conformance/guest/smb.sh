# The mount over SMB by the kernel's cifs, in each dialect, and what it can see of a volume.
. "$CONF/guest/lib.sh"
modprobe cifs 2>/dev/null || true
WHO=username=mouse,password=Cheese-4-Mice
share() { mkdir -p /mnt/s; mount -t cifs -o "vers=$1,port=$SMBPORT,$WHO${2:-}" "//$HOST$EXP" /mnt/s; }
head -c 20000003 /dev/urandom >/tmp/big
for v in 3.1.1 3.0.2 3.0 2.1; do
  check "mount-$v" share $v
  mountpoint -q /mnt/s || { finish; exit 1; }
  check "write-$v" cp /tmp/big /mnt/s/big
  check "flush-$v" sync -f /mnt/s
  check "remount-$v" bash -c "umount /mnt/s; $(declare -f share); WHO=$WHO share $v"
  check "read-$v" cmp /tmp/big /mnt/s/big
  check "names-$v" bash -c 'mkdir /mnt/s/Dir && echo 1 >"/mnt/s/Dir/a:b?" && [ "$(cat "/mnt/s/Dir/a:b?")" = 1 ] && [ -d /mnt/s/Dir ] && mv "/mnt/s/Dir/a:b?" /mnt/s/Dir/Grüße && [ "$(ls /mnt/s/Dir)" = Grüße ]'
  check "append-$v" bash -c 'for i in 1 2 3; do echo $i >>/mnt/s/a; done; [ "$(wc -l </mnt/s/a)" = 3 ] && truncate -s 2 /mnt/s/a && [ "$(stat -c %s /mnt/s/a)" = 2 ]; rm /mnt/s/a'
  check "parallel-$v" bash -c 'for i in $(seq 16); do head -c 65536 /dev/urandom >/mnt/s/c$i & done; wait; [ "$(ls /mnt/s | grep -c "^c")" = 16 ] && rm /mnt/s/c*'
  check "times-$v" bash -c 'touch -d "2001-02-03 04:05:06" /mnt/s/t && [ "$(stat -c %Y /mnt/s/t)" = "$(date -d "2001-02-03 04:05:06" +%s)" ]; rm /mnt/s/t'
  check "exclusive-$v" bash -c 'set -C; echo 1 >/mnt/s/x && ! echo 2 >/mnt/s/x 2>/dev/null; [ "$(cat /mnt/s/x)" = 1 ] && rm /mnt/s/x'
  check "unlinked-$v" bash -c 'echo data >/mnt/s/u; exec 6</mnt/s/u; rm /mnt/s/u; [ "$(cat <&6)" = data ] || exit 1; exec 6<&-; [ ! -e /mnt/s/u ]'
  check "listing-$v" bash -c 'mkdir /mnt/s/many; for i in $(seq 600); do : >/mnt/s/many/file-with-a-name-$i; done; [ "$(ls /mnt/s/many | wc -l)" = 600 ]; rm -r /mnt/s/many; [ ! -e /mnt/s/many ]'
  read -r _ size used avail _ <<<"$(df -P /mnt/s | tail -n 1)"
  [ "$size" -gt 0 ] && [ "$avail" -gt 0 ] && [ "$avail" -le "$size" ] && ok "df-$v" || bad "df-$v" "$size $used $avail"
  check "remove-all-$v" bash -c 'rm -rf /mnt/s/Dir /mnt/s/big && [ -z "$(ls /mnt/s)" ]'
  check "umount-$v" umount /mnt/s
done
# The same files over both protocols.
check both-mounts bash -c "$(declare -f share mount_volume); HOST=$HOST EXP=$EXP OPTS=$OPTS WHO=$WHO SMBPORT=$SMBPORT; share 3.1.1 && mount_volume"
check smb-to-nfs bash -c 'cp /tmp/big /mnt/s/big && sync -f /mnt/s && cmp /tmp/big /mnt/n/big'
check nfs-to-smb bash -c 'cp /tmp/big /mnt/n/back && sync -f /mnt/n && cmp /tmp/big /mnt/s/back && rm /mnt/n/big /mnt/n/back'
# What one lists, the other changes: a directory's lease is broken in between.
check listing-cached bash -c 'mkdir /mnt/s/L; for i in $(seq 5); do [ -z "$(ls /mnt/s/L)" ] || exit 1; : >/mnt/n/L/x$i; [ "$(ls /mnt/s/L)" = x$i ] || exit 2; mv /mnt/n/L/x$i /mnt/n/L/y; [ "$(ls /mnt/s/L)" = y ] || exit 3; rm /mnt/n/L/y; done; rmdir /mnt/s/L'
check listing-own bash -c 'mkdir /mnt/s/O; for i in $(seq 20); do ls /mnt/s/O >/dev/null; : >/mnt/s/O/x$i; [ "$(ls /mnt/s/O | wc -l)" = $i ] || exit 1; done; rm -r /mnt/s/O; [ ! -e /mnt/s/O ]'
umount /mnt/n
check umount-both umount /mnt/s
WHO=username=mouse,password=wrong refuses wrong-password 'Permission denied' share 3.1.1
refuses smb1 '' share 1.0
# Encrypted in each dialect that can: by AES-GCM, and in 3.0 by AES-CCM.
for v in 3.1.1 3.0; do
  check "sealed-$v" share "$v" ,seal
  check "sealed-data-$v" bash -c 'head -c 3000000 /dev/urandom >/tmp/s && cp /tmp/s /mnt/s/sealed && echo 3 >/proc/sys/vm/drop_caches && cmp /tmp/s /mnt/s/sealed && rm /mnt/s/sealed'
  check "unsealed-$v" umount /mnt/s
done
finish
