# The kernel's NFS server as a reference, in a machine of its own: /share/disk (ext4) at /export.
# KNFSD is the unpacked nfs-kernel-server package (rpc.nfsd, rpc.mountd, exportfs).
export PATH=$KNFSD/usr/sbin:$KNFSD/sbin:$PATH
mkdir -p /export /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/v4recovery; touch /var/lib/nfs/etab /var/lib/nfs/rmtab
modprobe loop; modprobe nfsd; mount -t nfsd nfsd /proc/fs/nfsd
mount -o loop /share/disk /export && rmdir /export/lost+found && chmod 777 /export || exit 1
: >/etc/nfs.conf # Debian sets manage-gids there: the server would look the groups up itself
rpcbind -w; rpc.statd --no-notify
echo '/export *(rw,sync,no_root_squash,no_subtree_check,insecure)' >/etc/exports
exportfs -ra && rpc.mountd -p 20048 && rpc.nfsd -V 3 -N 4 8 || exit 1
exportfs -v; rpcinfo -p
exec sleep 100000
