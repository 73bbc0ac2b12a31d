-- Ends a call of ours. The pod goes back to the tier it belongs to now, or to the one it was marked for.
-- call, pod (empty: whichever it was)
local call, pod = ARGV[3], ARGV[4]

if config_changed() then return {'ConfigChanged'} end
local record = call_key(call)
local holder = redis.call('HGET', record, 'pod_name')
if not holder then return {'UnknownCall'} end
if pod ~= '' and pod ~= holder then return {'NotOwner', holder} end
pod = holder
local own_calls, own_lease = calls_key(pod), lease_key(pod)
if redis.call('SISMEMBER', own_calls, call) == 0 then return {'NotOwner', holder} end

local lease = redis.call('GET', own_lease)
local named = redis.call('GET', tier_key(pod)) or ''
local tier = by_name[named]
if tier and redis.call('SISMEMBER', tier.assigned, pod) == 0 then tier = nil end
local draining = redis.call('GET', draining_key(pod))
local others = 0
for _, other in ipairs(redis.call('SMEMBERS', own_calls)) do
  if other ~= call and is_alive(other, pod) then others = others + 1 end
end
local calls = tier and free_calls(tier, pod)
local pending = redis.call('HGET', PENDING, pod)
local is_suspect = redis.call('HEXISTS', SUSPECTS, pod) == 1

-- An exclusive pod is free when no lease but ours and no other call is left.
local is_idle = others <= 0 and (not lease or lease == call)
if tier and tier.shared then is_idle = others <= 0 and (calls or tonumber(draining or '') or 0) <= 1 end
local to = tier and pending and tier.in_chain and by_name[pending] or nil
if to and not (
  to ~= tier and to.in_chain and is_idle and not draining
  and redis.call('SCARD', tier.assigned) > tier.target and redis.call('SCARD', to.assigned) < to.target
  and not free_calls(to, pod)
) then to = nil end
local metadata
if to then metadata = metadata_with(pod, to.name) end
if is_dry then return {'Released', pod, (to or tier or {name = ''}).name} end

redis.call('DEL', record)
redis.call('SREM', own_calls, call)
if lease and (is_idle or (lease == call and not (tier and tier.shared))) then redis.call('DEL', own_lease) end
if is_suspect and not (tier and tier.shared) then redis.call('HDEL', SUSPECTS, pod) end
if pending and (is_idle or not tier) then redis.call('HDEL', PENDING, pod) end
if not tier then return {'Released', pod, ''}, true end
if draining then
  -- The count of a draining pod waits in its mark.
  local waiting = tonumber(draining)
  if tier.shared and waiting and waiting > 0 then redis.call('SET', draining_key(pod), waiting - 1, 'KEEPTTL') end
  return {'Released', pod, tier.name, 'draining'}, true
end
if to then
  unpublish(tier, pod)
  redis.call('SREM', tier.assigned, pod)
  redis.call('SET', tier_key(pod), to.name)
  redis.call('SADD', to.assigned, pod)
  publish(to, pod, 0)
  if metadata then redis.call('HSET', METADATA, pod, metadata) end
  return {'Released', pod, to.name, 'moved from ' .. tier.name}, true
end
if tier.shared then
  if calls then redis.call('ZADD', tier.available, math.max(calls - 1, 0), pod) end
elseif is_idle then
  redis.call('SADD', tier.available, pod)
end
return {'Released', pod, tier.name}, true
