"""A database whose tables are put back to what they were, as a failover does it."""

import sqlalchemy as sa


class Rewound:
    """All rows of all tables, copied and put back; the connections of users stay."""

    def __init__(self, url):
        self._engine = sa.create_engine(url)
        self._rows = {}

    def copy(self):
        self._rows = {}
        with self._engine.begin() as connection:
            for table in self._tables(connection):
                rows = connection.execute(sa.select(table)).mappings().all()
                self._rows[table.name] = [dict(row) for row in rows]

    def put_back(self):
        with self._engine.begin() as connection:
            for table in self._tables(connection):
                connection.execute(sa.delete(table))
                if rows := self._rows.get(table.name):
                    connection.execute(sa.insert(table), rows)

    def close(self):
        self._engine.dispose()

    def _tables(self, connection):
        known = sa.MetaData()
        known.reflect(connection)
        return known.sorted_tables
