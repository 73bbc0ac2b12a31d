-- Takes a pod out of allocation; its calls go on. It ends by undrain, not by time.
-- pod, uid, cause (empty: somebody's word; else it only holds where nobody has said so before), epoch
local pod, uid, cause, epoch = ARGV[3], ARGV[4], ARGV[5] or '', ARGV[6] or ''

if config_changed() then return {'ConfigChanged'} end
local refusal = fenced(epoch)
if refusal then return refusal end
if is_merchants(pod) then return {'Merchant'} end
if is_misnamed(pod) then return MISNAMED end
local there = assigned_to(pod)
if #there == 0 then return {'NotThere'} end
if is_other_uid(pod, uid) then return {'OtherUid'} end
local draining = redis.call('GET', draining_key(pod))
local free, calls = {}, 0
for _, tier in ipairs(tiers) do
  local here = free_calls(tier, pod)
  if here then
    free[#free + 1] = tier
    calls = math.max(calls, here)
  end
end
local alive = calls_of(pod)
local was_cause = redis.call('HGET', pod_key(pod), 'suspended')
redis.call('HEXISTS', PENDING, pod)
redis.call('HEXISTS', SUSPECTS, pod)
-- Asked again, it has the calls that the mark keeps. In this order: a foreign mark may be "nan".
local kept = draining and #free == 0 and there[1].shared and tonumber(draining) or 0
local answer = {'Drained', there[1].name, tostring(math.max(calls, #alive, kept))}
if cause ~= '' and draining and #free == 0 then return answer end
if is_dry then return answer end

-- A shared pod's count would be lost with its place in the pool: the mark keeps it.
if cause ~= '' and draining then
  redis.call('SET', draining_key(pod), math.max(calls, #alive), 'KEEPTTL')
elseif not draining or #free > 0 then
  redis.call('SET', draining_key(pod), math.max(calls, #alive))
else
  redis.call('PERSIST', draining_key(pod))
end
for _, tier in ipairs(free) do unpublish(tier, pod) end
if cause ~= '' and not draining then redis.call('HSET', pod_key(pod), 'suspended', cause) end
if cause == '' and was_cause then redis.call('HDEL', pod_key(pod), 'suspended') end
raise_epoch(epoch)
redis.call('HDEL', PENDING, pod)
redis.call('HDEL', SUSPECTS, pod)
return answer
