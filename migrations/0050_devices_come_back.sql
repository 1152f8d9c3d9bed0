-- Each connection of a device updates its row when it begins and when it ends. No index has the columns that change, so an
-- update leaves the indexes alone if the new version of the row fits its page. Half of each page is left free: the devices
-- of a page often come back together.
ALTER TABLE devices SET (fillfactor = 50);
