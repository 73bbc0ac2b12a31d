-- Says that a call goes on: its lease and its record live for another span.
-- call, lease in ms, record in ms
local call, lease_ms, record_ms = ARGV[3], ARGV[4], ARGV[5]

if config_changed() then return {'ConfigChanged'} end
local pod = redis.call('HGET', call_key(call), 'pod_name')
if not pod or redis.call('SISMEMBER', calls_key(pod), call) == 0 then return {'UnknownCall'} end
local lease = redis.call('GET', lease_key(pod))
local tier = by_name[redis.call('GET', tier_key(pod)) or '']
if not tier then return {'LeaseLost', pod} end
if not tier.shared and ((lease and lease ~= call) or free_calls(tier, pod)) then return {'LeaseLost', pod} end
local is_suspect = redis.call('HEXISTS', SUSPECTS, pod) == 1

redis.call('SET', lease_key(pod), call, 'PX', lease_ms)
redis.call('PEXPIRE', call_key(call), record_ms)
if is_suspect and not tier.shared then redis.call('HDEL', SUSPECTS, pod) end
return {'Renewed', pod, tier.name}, true
