# Export policies that change under a mounted kernel client. The host gives the volume the policy that it finds in
# ctl/policy (the rules as the API has them), and answers with ctl/policy.done.
. "$CONF/guest/lib.sh"
policy() { # policy RULES
  rm -f /share/ctl/policy.done; echo "$1" >/share/ctl/policy.new; mv /share/ctl/policy.new /share/ctl/policy
  for _ in $(seq 300); do [ -e /share/ctl/policy.done ] && { grep -q '^ok' /share/ctl/policy.done; return; }; sleep 0.1; done
  return 1
}
rule() { # rule CLIENTS ACCESS [ROOT]
  printf '{"allowedClients":"%s","accessType":"%s","nfsv3":true,"nfsv4":true,"hasRootAccess":"%s"}' "$1" "$2" "${3:-true}"
}
ME=$(ip -4 -o addr show scope global | awk '{sub("/.*", "", $4); print $4; exit}')
# Whatever a server answers when the root of a mount is looked at again, the Linux client says that it is stale.
shut() { echo 3 >/proc/sys/vm/drop_caches; refuses "$1" 'Stale' ls /mnt/n/; }
check mount mount_volume || { finish; exit 1; }
chmod 777 /mnt/n
check open-to-all touch /mnt/n/one
check to-reading policy "[$(rule "$ME" READ_ONLY),$(rule '*' READ_WRITE)]"
refuses reading-only 'Read-only' touch /mnt/n/two
check reading-goes-on bash -c 'echo 3 >/proc/sys/vm/drop_caches; cat /mnt/n/one'
check to-another policy "[$(rule 192.0.2.1 READ_WRITE)]"
shut not-me
# NFSv4 has no MOUNT: what a client may not use is not in the tree that it is shown.
case $OPTS in *vers=4*) said='No such file' ;; *) said=denied ;; esac
refuses no-mount "$said" bash -c "mkdir -p /mnt/m; mount -t nfs -o '$OPTS,nolock' $HOST:$EXP /mnt/m"
check not-listed bash -c "! showmount -e $HOST | grep -q '^$EXP'"
check to-my-network policy "[$(rule "${ME%.*}.0/24" READ_WRITE)]"
check back-again bash -c 'echo 3 >/proc/sys/vm/drop_caches; ls /mnt/n/one && touch /mnt/n/three'
check to-refusal policy "[$(rule "$ME" READ_NONE),$(rule '*' READ_WRITE)]"
shut refused
check to-squashing policy "[$(rule '*' READ_WRITE false)]"
check squashed bash -c 'touch /mnt/n/four && [ "$(stat -c %u /mnt/n/four)" = 65534 ]'
check to-my-name policy "[$(rule '*.clients.test' READ_WRITE)]"
check by-name bash -c 'echo 3 >/proc/sys/vm/drop_caches; touch /mnt/n/five'
check to-another-name policy "[$(rule 'x*.clients.test' READ_WRITE)]"
shut not-by-name
# A change while something is being written.
check to-all policy "[$(rule '*' READ_WRITE)]"
( for i in $(seq 40); do head -c 200000 /dev/urandom >"/mnt/n/w$i" || exit 1; done; sync -f /mnt/n ) & writing=$!
for i in $(seq 10); do policy "[$(rule "192.0.2.$i" READ_ONLY),$(rule '*' READ_WRITE)]" || bad changing "$i"; done
check written wait $writing
check whole bash -c 'echo 3 >/proc/sys/vm/drop_caches; [ "$(cat /mnt/n/w* | wc -c)" = 8000000 ]'
check clean-up bash -c 'rm /mnt/n/{one,three,four,five} /mnt/n/w*'
check umount umount /mnt/n
finish
