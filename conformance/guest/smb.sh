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
# Over eight connections: whichever the client sends a chain over first has the credits for it.
check channels-mount share 3.1.1 ,multichannel,max_channels=8
if mountpoint -q /mnt/s; then
  check channels grep -q '[[:space:]]Extra Channels: 7' /proc/fs/cifs/DebugData
  check channels-parallel bash -c 'for i in $(seq 16); do cp /tmp/big /mnt/s/c$i & done; wait; echo 3 >/proc/sys/vm/drop_caches; for i in $(seq 16); do cmp /tmp/big /mnt/s/c$i || exit 1; done; rm /mnt/s/c*'
  check channels-umount umount /mnt/s
fi
# With the POSIX extensions: modes, exact names with any character, and files that go on without their names.
check posix-mount share 3.1.1 ,posix
if mountpoint -q /mnt/s; then
  check posix-mode bash -c 'umask 027; mkdir /mnt/s/P && : >/mnt/s/P/f && [ "$(stat -c %a /mnt/s/P /mnt/s/P/f | tr "\n" " ")" = "750 640 " ]'
  check posix-owner bash -c '[ "$(stat -c %u /mnt/s/P/f)" = "$(stat -c %u /mnt/s/P)" ]'
  check posix-case bash -c 'echo 1 >/mnt/s/P/Case; echo 2 >/mnt/s/P/case; [ "$(cat /mnt/s/P/Case /mnt/s/P/case | tr -d "\n")" = 12 ] && [ "$(ls /mnt/s/P | wc -l)" = 3 ]'
  check posix-names bash -c 'cd /mnt/s/P; for n in "a:b" "q?*" "<x>" "back\\slash" "end." "end "; do echo "$n" >"./$n" && [ "$(cat "./$n")" = "$n" ] && ls | grep -qxF -- "$n" && mv "./$n" "./$n-" && rm "./$n-" || exit 1; done'
  # Linux 6.1 finds a name that is gone by the descriptor it has, so that others say whether it is: here, NFS.
  check posix-unlinked env HOST=$HOST EXP=$EXP OPTS=$OPTS bash -c "$(declare -f mount_volume)"'; mount_volume || exit 1; cd /mnt/s/P; echo data >u; exec 6<u; rm u; [ ! -e /mnt/n/P/u ] && echo other >/mnt/n/P/u && [ "$(cat <&6)" = data ] && [ "$(cat /mnt/n/P/u)" = other ]; s=$?; exec 6<&-; [ $s = 0 ] && [ "$(cat u)" = other ]; s=$?; umount /mnt/n; exit $s'
  check posix-replaced bash -c 'cd /mnt/s/P; echo old >r; exec 6<r; echo new >s; mv s r; [ "$(cat <&6)" = old ] || exit 1; exec 6<&-; [ "$(cat r)" = new ] && [ ! -e s ]'
  check posix-directories bash -c 'cd /mnt/s/P; mkdir one two && mv -T one two && [ ! -e one ] && rmdir two'
  check posix-links bash -c 'cd /mnt/s/P; ln f g && [ "$(stat -c %h f)" = 2 ] && [ "$(stat -c %i f)" = "$(stat -c %i g)" ]'
  check posix-df bash -c '[ "$(stat -f -c %b /mnt/s)" -gt 0 ]'
  check posix-remove bash -c 'rm -r /mnt/s/P && [ ! -e /mnt/s/P ]'
  check posix-umount umount /mnt/s
fi
finish
