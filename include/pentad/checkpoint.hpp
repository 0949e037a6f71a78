// Checkpoints: the state of a run in files, which is read on any mesh.
#pragma once

#include <pentad/checkpoint/checksum.hpp>
#include <pentad/checkpoint/folder.hpp>
#include <pentad/checkpoint/manifest.hpp>
#include <pentad/checkpoint/piece.hpp>
#include <pentad/checkpoint/reader.hpp>
#include <pentad/checkpoint/writer.hpp>
