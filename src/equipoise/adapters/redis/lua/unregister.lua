-- Forgets a pod that is gone, its calls with it.
-- pod, uid, epoch
local pod, uid, epoch = ARGV[3], ARGV[4], ARGV[5]

if config_changed() then return {'ConfigChanged'} end
local refusal = fenced(epoch)
if refusal then return refusal end
if is_merchants(pod) then return {'Merchant'} end
if is_misnamed(pod) then return MISNAMED end
if is_other_uid(pod, uid) then return {'OtherUid'} end

-- Each is read, whatever the one before said: a key of a wrong type must fail here.
local has_metadata = redis.call('HEXISTS', METADATA, pod) == 1
local is_known = redis.call('EXISTS', tier_key(pod), pod_key(pod)) > 0 or has_metadata
for _, tier in ipairs(tiers) do
  local is_assigned, calls = redis.call('SISMEMBER', tier.assigned, pod) == 1, free_calls(tier, pod)
  is_known = is_known or is_assigned or calls ~= nil
end
local alive = calls_of(pod)
redis.call('HEXISTS', SUSPECTS, pod)
redis.call('HEXISTS', PENDING, pod)
if not is_known then return {'NotThere'} end
if is_dry then return {'Unregistered'} end

raise_epoch(epoch)
for _, tier in ipairs(tiers) do
  unpublish(tier, pod)
  redis.call('SREM', tier.assigned, pod)
end
for _, call in ipairs(alive) do redis.call('DEL', call_key(call)) end
redis.call('DEL', tier_key(pod), pod_key(pod), calls_key(pod), lease_key(pod), draining_key(pod))
redis.call('HDEL', METADATA, pod)
redis.call('HDEL', PENDING, pod)
redis.call('HDEL', SUSPECTS, pod)
return {'Unregistered'}
