// Metrics of /metrics that the console's figures are, by the figure.

export const metric = {
  bytes: 'weir_operation_bytes_total, per second',
  operations: 'weir_operation_seconds_count, per second',
  condition: 'weir_condition',
  latency: 'weir_operation_seconds: quantiles of the last second',
  waiting: 'weir_throttle_queue_length, weir_throttle_queue_bytes',
  bound: 'weir_limit_bound_seconds_total, per second',
  wait: 'weir_operation_wait_seconds_total, per operation of weir_operation_seconds',
  limit: 'weir_limit_bytes_per_second',
  used: 'weir_limit_used_bytes_per_second',
  client: 'weir_client_bytes_total, per second',
  clientLatency: 'weir_client_operation_seconds',
  pair: 'weir_pair_*',
  replication: 'weir_snapmirror_*',
};
