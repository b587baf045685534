smbd --foreground --no-process-group -s /var/tmp/weir-bench-25490/smbd-names-1/smb.conf
