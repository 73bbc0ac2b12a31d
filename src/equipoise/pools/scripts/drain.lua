-- Takes a pod out of allocation; its calls go on. It ends by undrain, not by time.
-- pod, uid
local pod, uid = ARGV[3], ARGV[4]

if config_changed() then return {'ConfigChanged'} end
if is_merchants(pod) then return {'Merchant'} end
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
redis.call('HEXISTS', PENDING, pod)
redis.call('HEXISTS', SUSPECTS, pod)
if is_dry then return {'Drained', there[1].name, tostring(math.max(calls, #alive))} end

-- A shared pod's count would be lost with its place in the pool: the mark keeps it.
if not draining or #free > 0 then
  redis.call('SET', draining_key(pod), math.max(calls, #alive))
else
  redis.call('PERSIST', draining_key(pod))
end
for _, tier in ipairs(free) do unpublish(tier, pod) end
redis.call('HDEL', PENDING, pod)
redis.call('HDEL', SUSPECTS, pod)
return {'Drained', there[1].name, tostring(math.max(calls, #alive))}
