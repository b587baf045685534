weir serve --data /var/tmp/weir-bench-10838/weir-lookup-2/data --nfs 127.0.0.1:22051 --no-rpcbind --ready-file /var/tmp/weir-bench-10838/weir-lookup-2/ready
