-- The account that services of docker-compose.yml log in with. Run once by the image of PostgreSQL, when it has made the
-- database `switchboard`, as the superuser; POSTGRES_PASSWORD is in its environment and on no command line.
\getenv password POSTGRES_PASSWORD

-- It owns the database and nothing else, makes no roles, and is held to row security. The roles that its statements run
-- under it would have to make otherwise (migrations/0013_row_security.sql).
CREATE ROLE switchboard LOGIN PASSWORD :'password' NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
CREATE ROLE switchboard_service NOLOGIN;
CREATE ROLE switchboard_search NOLOGIN;
GRANT switchboard_service, switchboard_search TO switchboard;
ALTER DATABASE switchboard OWNER TO switchboard;

-- Only a superuser may make these two everywhere. `IF NOT EXISTS` of migrations and of control finds them.
CREATE EXTENSION pg_trgm;
CREATE EXTENSION vector;

-- From here on the superuser is let in through the socket in its container, and by no password over the network.
ALTER ROLE CURRENT_USER PASSWORD NULL;
