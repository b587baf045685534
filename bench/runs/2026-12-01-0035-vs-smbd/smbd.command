smbd --foreground --no-process-group -s /var/tmp/weir-bench-19322/smbd-names-2/smb.conf
