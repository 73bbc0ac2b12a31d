-- Mends what the keys of one pod contradict, where only one end is right; else says why not.
-- pod (empty: the epoch), epoch
local pod, epoch = ARGV[3], ARGV[4]

if config_changed() then return {'ConfigChanged'} end
if pod == '' then
  if stored_epoch() then return {'Sound'} end
  redis.call('DEL', EPOCH)
  return {'Mended', '', 'the epoch is forgotten; the next leader writes its own'}
end
local refusal = fenced(epoch)
if refusal then return refusal end
local named = redis.call('GET', tier_key(pod))
if is_merchants(pod) then return {'Unsafe', 'it belongs to a merchant'} end
local there = assigned_to(pod)
local own = by_name[named or '']

-- Where it belongs: the one tier that has it, else the one that its key names.
local tier = #there == 1 and there[1] or nil
if #there ~= 1 then tier = own end
local free_in, calls = {}, nil
for _, each in ipairs(tiers) do
  local here = free_calls(each, pod)
  if here then
    free_in[#free_in + 1] = each
    if each == tier then calls = here end
  end
end
if not tier and #there == 0 and #free_in == 1 and not named then tier = free_in[1] end
if not tier then return {'Unsafe', #there == 0 and 'no key says which tier it belongs to' or 'its tiers disagree'} end
for _, each in ipairs(free_in) do
  if each ~= tier and each.shared and free_calls(each, pod) > 0 then
    return {'Unsafe', 'it has calls in ' .. each.name}
  end
end
local is_draining = redis.call('GET', draining_key(pod)) ~= false
local metadata = metadata_with(pod, tier.name)
local mended = {}

if redis.call('SISMEMBER', tier.assigned, pod) == 0 then
  redis.call('SADD', tier.assigned, pod)
  mended[#mended + 1] = 'assigned to ' .. tier.name
end
for _, each in ipairs(there) do
  if each ~= tier then
    redis.call('SREM', each.assigned, pod)
    mended[#mended + 1] = 'no longer assigned to ' .. each.name
  end
end
for _, each in ipairs(free_in) do
  if each ~= tier or is_draining then
    unpublish(each, pod)
    mended[#mended + 1] = 'no longer available in ' .. each.name
  end
end
if is_draining and calls then redis.call('SET', draining_key(pod), calls, 'KEEPTTL') end
if named ~= tier.name then
  redis.call('SET', tier_key(pod), tier.name)
  if metadata then redis.call('HSET', METADATA, pod, metadata) end
  mended[#mended + 1] = 'its key names ' .. tier.name
end
if #mended == 0 then return {'Sound', tier.name} end
raise_epoch(epoch)
return {'Mended', tier.name, table.concat(mended, ', ')}
