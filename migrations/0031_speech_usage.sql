-- What users and devices said to each other, by hour: recognised utterances, and answers that were spoken.
ALTER TABLE usage_turns ADD COLUMN speech_ms bigint NOT NULL DEFAULT 0;
