-- name: post
INSERT INTO requests (request_id, root, run, verb, args, actor, state, posted_at)
VALUES (:request_id, :root, :run, :verb, :args, :actor, 'pending', :now)
ON CONFLICT (request_id) DO NOTHING

-- name: one
SELECT requests.id, request_id, runs.run_id, verb, args, actor, state, outcome, posted_at, requests.ended_at, requests.root
FROM requests JOIN runs ON runs.id = requests.run WHERE request_id = :request_id

-- name: pending
-- In the order in which they were posted.
SELECT requests.id, request_id, runs.run_id, verb, args, actor, state, outcome, posted_at, requests.ended_at, requests.root
FROM json_each(:root_run_ids) AS wanted JOIN runs AS root ON root.run_id = wanted.value
  JOIN requests ON requests.root = root.id AND requests.state = 'pending' JOIN runs ON runs.id = requests.run
ORDER BY requests.id

-- name: settle
UPDATE requests SET state = 'settled', outcome = :outcome, ended_at = :now
WHERE request_id = :request_id AND state = 'pending'

-- name: withdraw
UPDATE requests SET state = 'withdrawn', ended_at = :now WHERE request_id = :request_id AND state = 'pending'
