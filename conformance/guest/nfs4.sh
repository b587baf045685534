# The mount over NFSv4.1 and 4.2, then what the kernel client can see of a volume (files.py), opens and locks.
. "$CONF/guest/lib.sh"
REST=$(sed 's/vers=[^,]*,//; s/,mountport=[0-9]*//' <<<"$OPTS")
for v in 4.2 4.1; do
  check "mount-$v" mount_volume "vers=$v,$REST"
  mountpoint -q /mnt/n || { finish; exit 1; }
  opts=$(awk '$2=="/mnt/n"{print $4}' /proc/mounts); echo "# $opts"
  for o in vers=$v proto=tcp rsize=1048576 wsize=1048576; do check "option-$v-$o" grep -q "$o" <<<"$opts"; done
  check "write-$v" bash -c 'for i in $(seq 32); do head -c 65536 /dev/urandom >/mnt/n/c$i & done; wait; sync -f /mnt/n; rm /mnt/n/c*'
  head -c 67108864 /dev/urandom >/tmp/big; cp /tmp/big /mnt/n/big
  check "remount-$v" remount_volume "vers=$v,$REST"; check "data-after-remount-$v" cmp /tmp/big /mnt/n/big; rm /mnt/n/big
  read -r _ size used avail _ <<<"$(df -P /mnt/n | tail -n 1)"
  [ "$size" -gt 0 ] && [ "$avail" -gt 0 ] && [ "$avail" -le "$size" ] && [ "$used" -le "$size" ] && ok "df-$v" || bad "df-$v" "$size $used $avail"
  # Removed while it is open.
  check "unlinked-$v" bash -c 'exec 5>/mnt/n/u 6</mnt/n/u; echo data >&5; rm /mnt/n/u; echo more >&5; [ "$(cat <&6)" = "data
more" ]'
  check "no-silly-names-$v" bash -c '[ -z "$(ls -A /mnt/n | grep "^\.nfs")" ]'
  check "flock-$v" bash -c 'exec 5>/mnt/n/l; flock -n 5 && ! flock -n /mnt/n/l true; flock -u 5; flock -n /mnt/n/l true; rm /mnt/n/l'
  check "append-$v" bash -c 'for i in 1 2 3; do echo $i >>/mnt/n/a; done; [ "$(wc -l </mnt/n/a)" = 3 ]; rm /mnt/n/a'
  check "exclusive-$v" bash -c 'set -C; echo 1 >/mnt/n/x && ! echo 2 >/mnt/n/x 2>/dev/null; [ "$(cat /mnt/n/x)" = 1 ] && rm /mnt/n/x'
  check "execute-$v" bash -c 'printf "#!/bin/sh\necho ran\n" >/mnt/n/s; chmod 111 /mnt/n/s; cp /bin/true /mnt/n/t; chmod 111 /mnt/n/t; /mnt/n/t && rm /mnt/n/s /mnt/n/t'
  if [ $v = 4.2 ]; then
    check xattrs python3 -c 'import os; p="/mnt/n/xa"; open(p,"w").close(); os.setxattr(p,"user.a",b"1"); os.setxattr(p,"user.b",b"2"*5000); user=lambda: sorted(n for n in os.listxattr(p) if n.startswith("user.")); assert user()==["user.a","user.b"]; assert os.getxattr(p,"user.b")==b"2"*5000; os.removexattr(p,"user.a"); assert user()==["user.b"]; assert "system.nfs4_acl" in os.listxattr(p); os.unlink(p)'
    check punch bash -c 'head -c 1048576 /dev/urandom >/mnt/n/p; sync /mnt/n/p; fallocate -p -o 8192 -l 524288 /mnt/n/p && [ "$(head -c 8192 /mnt/n/p | wc -c)" = 8192 ] && cmp <(dd if=/mnt/n/p bs=8192 skip=1 count=64 2>/dev/null) <(head -c 524288 /dev/zero); rm /mnt/n/p'
    check reflink bash -c 'head -c 1000000 /dev/urandom >/mnt/n/r; cp --reflink=always /mnt/n/r /mnt/n/r2 && cmp /mnt/n/r /mnt/n/r2; rm /mnt/n/r /mnt/n/r2'
    # Not in whole blocks, so that it is read and written; more than one request copies, so that it is in the background.
    check copy-in-background python3 -c 'import os; n=20<<20; d=os.urandom(n); s=os.open("/mnt/n/cs",os.O_RDWR|os.O_CREAT); t=os.open("/mnt/n/ct",os.O_RDWR|os.O_CREAT); os.pwrite(s,d,0); assert os.copy_file_range(s,t,n-1,1,0)==n-1; os.close(t); assert open("/mnt/n/ct","rb").read()==d[1:]; os.unlink("/mnt/n/cs"); os.unlink("/mnt/n/ct")'
    check allocate bash -c 'fallocate -l 100000 /mnt/n/f && [ "$(stat -c %s /mnt/n/f)" = 100000 ]; rm /mnt/n/f'
  fi
  mkdir -p /mnt/n/t && chmod 777 /mnt/n/t
  python3 "$CONF/guest/files.py" /mnt/n/t | sed "s/^\(ok\|FAIL\) /\1 $v-/" | tee /tmp/files.out
  PASSED=$((PASSED + $(grep -c '^ok ' /tmp/files.out))) FAILED=$((FAILED + $(grep -c '^FAIL ' /tmp/files.out)))
  rm -rf /mnt/n/t; [ ! -e /mnt/n/t ] && ok "remove-all-$v" || bad "remove-all-$v"
  check "umount-$v" umount /mnt/n
done
# The pseudo root, and the volume below it.
mkdir -p /mnt/r; check mount-root mount -t nfs4 -o "$REST" "$HOST:/" /mnt/r
check volume-below-root bash -c '[ "$(ls /mnt/r)" = "${EXP#/}" ] && touch /mnt/r$EXP/below && rm /mnt/r$EXP/below'
check root-is-read-only bash -c '! mkdir /mnt/r/new 2>/dev/null'
umount /mnt/r$EXP 2>/dev/null; check umount-root umount /mnt/r
refuses unknown-export 'No such file' mount -t nfs4 -o "$REST" "$HOST:/no/such/export" /mnt/n
refuses minor-0 '' mount -t nfs4 -o "vers=4.0,$REST" "$HOST:$EXP" /mnt/n
check no-version bash -c "mount -t nfs -o '$REST' $HOST:$EXP /mnt/n && grep -q ' /mnt/n nfs4 .*vers=4.2' /proc/mounts && umount /mnt/n"
dmesg | grep -i 'nfs' | tail -5 | sed 's/^/# /'
finish
