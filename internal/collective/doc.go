// Package collective lets the ranks of one run work together: the processes that mpirun,
// srun or an MPIJob has started.
//
// A [Group] sends bytes between ranks. What ranks do together is written over that alone:
// [GatherBytes] gives every rank what all have, [Broadcast] what rank 0 has, and [Chain] adds
// what they have in the order of the ranks. A chain and not a tree: floating-point sums
// depend on their order, and a sum in the order of the ranks has the bits that one
// process gets which adds everything in that order, whatever the number of ranks. It is
// as fast where numbers are many: they pass in pieces, so that all ranks add at the
// same time, and every rank sends and receives each number twice, as in a ring. [Sums] says where
// the numbers are: in the host's memory ([Messages]), or in that of devices.
//
// [World] is the group of this process. MPI is loaded when a launcher has started more than
// one process, so that a program starts on machines without it. Its calls are polled and
// never block: a rank hears from the others while it waits, and a wait ends when one of
// them has failed, stopped or fallen silent ([SilenceLimit]).
//
// Open MPI 4 and 5 are supported (libmpi.so.40). MPICH and its relatives have another
// binary interface and are refused by name. Programs that are built without cgo, which are static,
// cannot load a library and say so.
package collective
