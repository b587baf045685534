weir serve --data /var/tmp/weir-bench-9686/weir-lookup-2/data --nfs 127.0.0.1:22051 --no-rpcbind --api off --ready-file /var/tmp/weir-bench-9686/weir-lookup-2/ready
