-- Writes the config over the one that the caller has read. Tiers that it takes away, or whose type it
-- changes, must be empty.
-- new text, then the tiers that must be empty
if config_changed() then return {'ConfigChanged'} end
for at = 4, #ARGV do
  local pool = prefix .. ':pool:' .. ARGV[at]
  if redis.call('EXISTS', pool .. ':assigned', pool .. ':available') > 0 then return {'TierInUse', ARGV[at]} end
end
if is_dry then return {'Stored'} end

redis.call('SET', KEYS[1], ARGV[3])
return {'Stored'}
