ganesha.nfsd -F -L WORK/ganesha-lookup-2/ganesha.log -f WORK/ganesha-lookup-2/ganesha.conf -p WORK/ganesha-lookup-2/ganesha.pid -N NIV_EVENT
