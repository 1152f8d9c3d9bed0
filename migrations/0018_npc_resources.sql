-- What agents read of one NPC: its own memories and its template's, and these pictures.

CREATE FUNCTION npc_resources(org uuid, npc uuid, template uuid, shown uuid[]) RETURNS SETOF resources
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT r.* FROM memories m JOIN resources r ON r.memory_id = m.id
    WHERE (m.npc_id = npc OR m.template_id = template) AND (m.org_id = org OR m.org_id IS NULL)
          AND (m.expires_at IS NULL OR m.expires_at > now())
    UNION ALL
    SELECT r.* FROM resources r WHERE r.picture_id = ANY (shown) AND (r.org_id = org OR r.org_id IS NULL)
$$;
