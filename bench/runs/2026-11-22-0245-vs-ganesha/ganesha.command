ganesha.nfsd -F -L /var/tmp/weir-bench-20650/ganesha-read-0/ganesha.log -f /var/tmp/weir-bench-20650/ganesha-read-0/ganesha.conf -p /var/tmp/weir-bench-20650/ganesha-read-0/ganesha.pid -N NIV_EVENT
