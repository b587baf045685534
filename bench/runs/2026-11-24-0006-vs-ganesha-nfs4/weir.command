weir serve --data /var/tmp/weir-bench-6638/weir-lookup-1/data --nfs 127.0.0.1:22051 --no-rpcbind --api off --ready-file /var/tmp/weir-bench-6638/weir-lookup-1/ready
