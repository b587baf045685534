# The server is killed with -9 while the kernel's cifs writes to a continuously available share, then one of its four connections at a
# time is cut, then both: reads and writes in the guest wait and see no error; every byte is there afterwards.
. "$CONF/guest/lib.sh"
modprobe cifs 2>/dev/null || true
WHO=username=mouse,password=Cheese-4-Mice
share() { mkdir -p /mnt/s; mount -t cifs -o "vers=3.1.1,port=$SMBPORT,$WHO,hard,echo_interval=2${1:-}" "//$HOST$EXP" /mnt/s; }
under() { # WHAT NAME COMMAND...
  local what=$1 name=$2; shift 2; N=0
  "$@" >"/share/smb-crash-$name.log" 2>&1 & p=$!
  while kill -0 $p 2>/dev/null && [ $N -lt "$CRASHES" ]; do sleep 2.$((RANDOM % 10)); kill -0 $p 2>/dev/null && ask "$what"; done
  if wait $p; then ok "$name"; else bad "$name" "$(tail -n 3 "/share/smb-crash-$name.log" | tr '\n' ' ')"; fi
  echo "# $N times $what under $name"; [ $N -ge 3 ] && ok "$name-$what" || bad "$name-$what" "only $N"
}
mkdir -p /mnt/s
share || { bad mount; finish; exit 1; }
grep -q ' /mnt/s cifs .*persistenthandles' /proc/mounts && ok persistent || bad persistent "$(grep /mnt/s /proc/mounts)"
under crash model python3 "$CONF/guest/persistent.py" /mnt/s "${TURNS:-60}"
check umount-one umount /mnt/s
check channels-mount share ,multichannel,max_channels=4
check four-channels grep -q '[[:space:]]Extra Channels: 3' /proc/fs/cifs/DebugData
under cut channels python3 "$CONF/guest/persistent.py" /mnt/s "${TURNS:-60}"
under crash channels-model python3 "$CONF/guest/persistent.py" /mnt/s "${TURNS:-60}" channels
dmesg | grep CIFS >/share/smb-crash-dmesg.log || true
check umount umount /mnt/s
finish
