//! Scripts of the logs of live events.
//!
//! A log is one stream, so it exists or it does not: an entry's id is when the log began, in
//! microseconds, and the number of the entry. The first one has the number 0, and says nothing.

/// keys: log · args: how long to keep it → the id of its last entry, and 1 if it has just begun.
pub(super) const KEEP_LOG: &str = r"
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local id = last and last[1]
if not id then
  local now = redis.call('TIME')
  id = now[1] .. string.format('%06d', now[2]) .. '-0'
  redis.call('XADD', KEYS[1], id, 'type', '', 'at', 0, 'data', '')
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {id, last and 0 or 1}
";

/// keys: log · args: the most entries, then for each event its type, time and data. Without a log
/// nothing happens.
pub(super) const APPEND_LOG: &str = r"
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not last then return 0 end
local began, number = string.match(last[1], '^(%d+)-(%d+)$')
for i = 2, #ARGV, 3 do
  number = number + 1
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], began .. '-' .. string.format('%d', number),
    'type', ARGV[i], 'at', ARGV[i + 1], 'data', ARGV[i + 2])
end
return 1
";

/// keys: log · args: an id, the most entries → the last id and the entries after that one; nothing
/// without a log.
pub(super) const READ_LOG: &str = r"
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not last then return {} end
return {last[1], redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])}
";
