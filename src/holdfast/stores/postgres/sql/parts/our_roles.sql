(
    SELECT short, :prefix::text || '_' || short AS name, short <> 'owner' AS login
    FROM unnest(string_to_array('owner,api,worker,orchestrator,delivery,operator,readonly', ','))
        AS short
)
