# pjdfstest, the Rust port.
. "$CONF/guest/lib.sh"
mount_volume || { bad mount; finish; exit 1; }
getent group nobody >/dev/null || echo 'nobody:x:65534:' >>/etc/group
echo 'tests:x:977:977::/tmp:/bin/sh' >>/etc/passwd; echo 'tests:x:977:' >>/etc/group
umask 0; D=/mnt/n/pjd; rm -rf $D; mkdir -m 755 $D; cd $D || exit 1
"$SUITES/pjdfstest-rs/rust/target/release/pjdfstest" -c "$CONF/guest/pjdfstest.toml" -p $D -s /tmp ${PJD:-} >/share/pjdfstest.log 2>&1
echo "# status $?"; tail -n 5 /share/pjdfstest.log
cd /; rm -rf $D; umount /mnt/n
# Each line is "name  ok|skipped|FAILED"; what follows a FAILED name is indented.
eval "$(awk '$NF=="ok"{p++} $NF=="FAILED"{f++} $NF=="skipped"{k++} END{print "PASSED=" p+0 " FAILED=" f+0 " SKIPPED=" k+0}' /share/pjdfstest.log)"
awk '/^\t|^ /{if(n){gsub(/[\t ]+/," ");why=why $0}; next} {if(n)print "FAIL " n why; n="";why=""} $NF=="FAILED"{n=$1} END{if(n)print "FAIL " n why}' /share/pjdfstest.log
# Without its summary the suite did not come to its end, or did not begin: no failures are no success then.
summary=$(grep -aE '^(Summary|Tests): ' /share/pjdfstest.log)
total=$(sed -n 's/.* \([0-9]*\) total$/\1/p' <<<"$summary")
[ -n "$total" ] && [ "$total" = $((PASSED + FAILED + SKIPPED)) ] || bad ran-to-its-end "${summary:-$(tail -n 1 /share/pjdfstest.log)}"
finish
