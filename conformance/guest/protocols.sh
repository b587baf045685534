# One volume over NFSv3, NFSv4.2 and SMB from two machines, roles a and b, against a model (protocols.py).
. "$CONF/guest/lib.sh"
modprobe cifs 2>/dev/null || true
lock_services
# It knows of a name that is not there for a second otherwise.
echo 0 >/proc/fs/cifs/LookupCacheEnabled
N="port=$PORT,mountport=$MOUNTPORT,tcp,noac,lookupcache=none" S="vers=3.1.1,port=$SMBPORT,username=mouse,password=Cheese-4-Mice,actimeo=0,nosharesock,iocharset=utf8"
mkdir -p /mnt/v3 /mnt/v4 /mnt/smb /mnt/posix
mount -t nfs -o "vers=3,$N" "$HOST:$EXP" /mnt/v3 && mount -t nfs -o "vers=4.2,port=$PORT,noac,lookupcache=none" "$HOST:$EXP" /mnt/v4 &&
  mount -t cifs -o "$S" "//$HOST$EXP" /mnt/smb && mount -t cifs -o "$S,posix" "//$HOST$EXP" /mnt/posix || { bad mount; finish; exit 1; }
mkdir -p /share/ctl/protocols
[ "$ROLE" = b ] || chmod 777 /mnt/v3
echo "# seed $SEED"
python3 "$CONF/guest/protocols.py" "$ROLE" "$SEED" "${TURNS:-2000}" /share/ctl/protocols v3=/mnt/v3 v4=/mnt/v4 smb=/mnt/smb smb-posix=/mnt/posix >/tmp/out 2>&1; cat /tmp/out
PASSED=$(grep -c '^ok ' /tmp/out) FAILED=$(grep -c '^FAIL ' /tmp/out)
[ $((PASSED + FAILED)) -gt 0 ] || bad "$ROLE-program" "$(tail -n 3 /tmp/out | tr '\n' ' ')"
umount /mnt/v3 /mnt/v4 /mnt/smb /mnt/posix
finish
