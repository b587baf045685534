# Tests of xfstests over the kernel's NFS client or, with XFSTESTS_FS=cifs, over its SMB client: those that guest/xfstests.list names for
# it, or XFSTESTS=NAMES. One run of its `check`, since every start of that takes half a minute here; SKIPPED are those that say why they
# cannot run.
. "$CONF/guest/lib.sh"
FS=${XFSTESTS_FS:-nfs}
for u in fsgqa:1100 fsgqa2:1101 123456-fsgqa:1102; do
  echo "${u%:*}:x:${u#*:}:${u#*:}::/tmp:/bin/bash" >>/etc/passwd; echo "${u%:*}:x:${u#*:}:" >>/etc/group
done
check prepare bash -c "$(declare -f mount_volume); HOST=$HOST EXP=$EXP OPTS=$OPTS; mount_volume && mkdir -m 777 -p /mnt/n/test /mnt/n/scratch && umount /mnt/n"
export FSTYP=$FS TEST_DIR=/mnt/test SCRATCH_MNT=/mnt/scratch RESULT_BASE=/share/xfstests-$FS HOST_OPTIONS=/dev/null
rm -rf "$RESULT_BASE"; mkdir -p /mnt/test /mnt/scratch "$RESULT_BASE"
case $FS in
  cifs) modprobe cifs 2>/dev/null || true
    export TEST_DEV=//$HOST$EXP/test SCRATCH_DEV=//$HOST$EXP/scratch
    export CIFS_MOUNT_OPTIONS="-o vers=3.1.1,port=$SMBPORT,username=mouse,password=Cheese-4-Mice,noperm,mfsymlinks,actimeo=0${XFSTESTS_OPTS:-}"
    export TEST_FS_MOUNT_OPTS=$CIFS_MOUNT_OPTIONS MOUNT_OPTIONS=$CIFS_MOUNT_OPTIONS ;;
  *) export TEST_DEV=$HOST:$EXP/test SCRATCH_DEV=$HOST:$EXP/scratch
    export NFS_MOUNT_OPTIONS="-o $OPTS,nolock${XFSTESTS_OPTS:-}"
    export TEST_FS_MOUNT_OPTS=$NFS_MOUNT_OPTIONS MOUNT_OPTIONS=$NFS_MOUNT_OPTIONS ;;
esac
cd "$SUITES/xfstests" || exit 1
TESTS=${XFSTESTS:-$(awk -v f="$FS" '$1 !~ /^#/ && (" " $2 " " ~ " (any|" f ") ") {print $1}' "$CONF/guest/xfstests.list")}
log=/share/xfstests-$FS/log
./check "-$FS" $TESTS >"$log" 2>&1
for t in $TESTS; do
  line=$(grep "^$t " "$log" | head -n 1)
  case $line in
    *"[not run]"*) skip "$t ${line#*"[not run]"}" ;;
    *"[failed"* | *"output mismatch"*) bad "$t" "$(tail -n 12 "$RESULT_BASE/$t.out.bad" 2>/dev/null | tr '\n' '|' | cut -c 1-800)" ;;
    *s) ok "$t${line##* }" ;;
    *) bad "$t" "did not end: $line" ;;
  esac
done
finish
