-- Version 7: the pod that measured a call, where calls of several are together (`tokengauge fleet`); NULL elsewhere.

ALTER TABLE series ADD COLUMN cluster INTEGER;
ALTER TABLE series ADD COLUMN namespace INTEGER;
ALTER TABLE series ADD COLUMN pod INTEGER;
