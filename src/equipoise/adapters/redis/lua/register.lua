-- Takes a pod into a tier: the first of the chain under its target, else the last.
-- pod, uid, epoch, metadata (JSON, kept when the pod has some already)
local pod, uid, epoch, metadata_new = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if config_changed() then return {'ConfigChanged'} end
local refusal = fenced(epoch)
if refusal then return refusal end
if is_merchants(pod) then return {'Merchant'} end
if is_misnamed(pod) then return MISNAMED end
local there = assigned_to(pod)
if #there > 1 then return {'Unsound'} end

local tier = there[1]
local named = by_name[redis.call('GET', tier_key(pod)) or '']
if not tier and named and named.in_chain then tier = named end
if not tier then
  for _, each in ipairs(tiers) do
    if each.in_chain then
      tier = each
      if redis.call('SCARD', each.assigned) < each.target then break end
    end
  end
end
if not tier then return {'NoTier'} end
for _, each in ipairs(tiers) do
  if each ~= tier and free_calls(each, pod) then return {'Unsound'} end
end

local known, was_free = recorded_uid(pod), free_calls(tier, pod)
local alive = calls_of(pod)
local is_new = uid ~= '' and known ~= '' and known ~= uid
local is_leased = redis.call('GET', lease_key(pod)) ~= false
local is_draining = redis.call('EXISTS', draining_key(pod)) == 1
local metadata = metadata_with(pod, tier.name)
local had_metadata = redis.call('HEXISTS', METADATA, pod) == 1
redis.call('HEXISTS', SUSPECTS, pod)
redis.call('HEXISTS', PENDING, pod)
if is_dry then return {is_new and 'Replaced' or there[1] and 'Known' or 'Registered', tier.name} end

raise_epoch(epoch)
if uid ~= '' and known ~= uid then redis.call('HSET', pod_key(pod), 'uid', uid) end
if metadata_new ~= '' and not had_metadata then redis.call('HSET', METADATA, pod, metadata_new) end
if there[1] and not is_new then return {'Known', tier.name} end

redis.call('SET', tier_key(pod), tier.name)
redis.call('SADD', tier.assigned, pod)
if metadata then redis.call('HSET', METADATA, pod, metadata) end
redis.call('HDEL', SUSPECTS, pod)
if is_new then
  -- What the old incarnation did ended with it.
  for _, call in ipairs(alive) do redis.call('DEL', call_key(call)) end
  redis.call('DEL', calls_key(pod), lease_key(pod), draining_key(pod))
  redis.call('HDEL', PENDING, pod)
  redis.call('HDEL', pod_key(pod), 'suspended')
  publish(tier, pod, 0)
  return {'Replaced', tier.name}
end
-- A pod that came back in the middle of a call is not free.
if not is_draining and not was_free and (tier.shared or (not is_leased and #alive == 0)) then
  publish(tier, pod, #alive)
end
return {'Registered', tier.name}
