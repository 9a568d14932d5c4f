// Package jobs is what evaluation, generation and training have in common: checks of a job as rows of
// a table, and the work of a run as units that any number of processes share out among themselves.
//
// The processes of one run meet in a [Work], a folder of a store: one of the disk that all of them see, or
// one of a bucket. A unit has a name and a result. A process claims a unit, does it, stores the
// result and lets the claim go; the next one asks for the next unit ([Share]). Nobody deals: a process
// may come and go at any time, and the units of one that was killed are free again, on a disk at once and in a bucket when it
// has shown no life for 3 minutes. Before its first result a process agrees with the others on the settings of the run
// ([Work.Settings]). When all units have results, one process makes the output of them ([Work.Finish]) and removes the folder.
//
//	work := jobs.Open(objectstore.Local("out/run"), ".work", "out/run")
//	work.Settings, work.OnBegin = settings, checkSettings
//	leave, err := work.Enter(ctx, "", checkFolder)
//	share := jobs.Share[int]{Work: work, Units: units, Name: strconv.Itoa, Accept: accept}
//	for {
//		unit, claim, more, err := share.Next(ctx, true)
//		if err != nil || !more { … }
//		err = claim.Finish(ctx, measure(unit))
//	}
//	done, err := work.Finish(ctx, join)
//
// What comes of a unit must not depend on the process that does it.
//
// A run that one process makes, step by step, may keep its results as lines of a file instead ([ReopenLines]).
package jobs
