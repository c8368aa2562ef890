/* SPDX-License-Identifier: Apache-2.0 */
typedef int ckpi_fuzz_main_placeholder;
