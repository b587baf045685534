smbd --foreground --no-process-group -s /var/tmp/weir-bench-32126/smbd-names-2/smb.conf
