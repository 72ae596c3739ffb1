-- name: reserve
-- A released question is reserved anew with the next generation; any other stays as it is.
INSERT INTO prompts (prompt_id, prompt_key, run, position, generation, state)
VALUES (:prompt_id, :prompt_key, :run, :position, 1, 'reserved')
ON CONFLICT (run, prompt_key) DO UPDATE SET generation = generation + 1, state = 'reserved', reason = ''
WHERE state = 'released'

-- name: open
UPDATE prompts SET state = 'open', question = :question, asked_at = :now
WHERE prompt_id = :prompt_id AND generation = :generation AND state = 'reserved'

-- name: answer
UPDATE prompts SET state = 'answered', answer = :answer, actor = :actor, answered_at = :now
WHERE prompt_id = :prompt_id AND generation = :generation AND state = 'open'

-- name: release
UPDATE prompts SET state = 'released', reason = :reason
WHERE prompt_id = :prompt_id AND generation = :generation AND state IN ('reserved', 'open')

-- name: one
SELECT prompts.prompt_id, prompt_key, runs.run_id, position, generation, state, question, answer, actor,
  prompts.reason, asked_at, answered_at, prompts.run
FROM prompts JOIN runs ON runs.id = prompts.run WHERE prompts.prompt_id = :prompt_id

-- name: many
SELECT prompts.prompt_id, prompt_key, runs.run_id, position, generation, state, question, answer, actor,
  prompts.reason, asked_at, answered_at, prompts.run
FROM json_each(:prompt_ids) AS wanted JOIN prompts ON prompts.prompt_id = wanted.value
  JOIN runs ON runs.id = prompts.run

-- name: open_in_tree
SELECT prompts.prompt_id, prompt_key, runs.run_id, position, generation, state, question, answer, actor,
  prompts.reason, asked_at, answered_at, prompts.run
FROM runs JOIN prompts ON prompts.run = runs.id AND prompts.state = 'open'
WHERE runs.root = :root ORDER BY asked_at, prompts.prompt_id
