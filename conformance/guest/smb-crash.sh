# The server is killed with -9 while the kernel's cifs writes to a continuously available share: reads and writes in the
# guest wait and see no error; every byte is there afterwards.
. "$CONF/guest/lib.sh"
modprobe cifs 2>/dev/null || true
WHO=username=mouse,password=Cheese-4-Mice
share() { mkdir -p /mnt/s; mount -t cifs -o "vers=3.1.1,port=$SMBPORT,$WHO,hard,echo_interval=2${1:-}" "//$HOST$EXP" /mnt/s; }
crash() { touch /share/ctl/crash; until [ -e /share/ctl/crashed ]; do sleep 0.1; done; rm /share/ctl/crashed; N=$((N + 1)); }
under_crashes() { # NAME COMMAND...
  local name=$1; shift; N=0
  "$@" >"/share/smb-crash-$name.log" 2>&1 & p=$!
  while kill -0 $p 2>/dev/null && [ $N -lt "$CRASHES" ]; do sleep 2.$((RANDOM % 10)); kill -0 $p 2>/dev/null && crash; done
  if wait $p; then ok "$name"; else bad "$name" "$(tail -n 3 "/share/smb-crash-$name.log" | tr '\n' ' ')"; fi
  echo "# $N crashes under $name"; [ $N -ge 3 ] && ok "$name-crashes" || bad "$name-crashes" "only $N"
}
mkdir -p /mnt/s
share || { bad mount; finish; exit 1; }
grep -q ' /mnt/s cifs .*persistenthandles' /proc/mounts && ok persistent || bad persistent "$(grep /mnt/s /proc/mounts)"
under_crashes model python3 "$CONF/guest/persistent.py" /mnt/s "${TURNS:-60}"
dmesg | grep CIFS >/share/smb-crash-dmesg.log || true
check umount umount /mnt/s
finish
